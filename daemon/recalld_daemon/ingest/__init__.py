"""From files to searchable passages: parsers, chunking, redaction, and the pipeline that keeps store and disk equal."""
