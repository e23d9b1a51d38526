"""What is written down: vocabulary, journal, metric store, redaction, run record, schemas."""
