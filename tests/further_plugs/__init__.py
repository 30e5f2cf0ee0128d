"""Plugs of other papers, each in one file that uses the public interface alone: the proof that the sockets suffice."""
