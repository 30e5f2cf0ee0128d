"""One study: models, conditions and measures over images, kept in one store, told in rows, tables and pictures."""
