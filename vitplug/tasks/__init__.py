"""What differs between mmpretrain, mmseg and mmdet: one description for each library.

Nothing is imported here: :mod:`.targets` serves models of other libraries, too, and needs torch alone.
"""
