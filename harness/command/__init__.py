"""The training command: parsed, its entrypoint found, validated, without a shell."""
