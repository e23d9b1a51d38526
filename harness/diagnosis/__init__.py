"""Why a run failed: its logs read for the first causal error, classed by rules that are data, with fixes."""
