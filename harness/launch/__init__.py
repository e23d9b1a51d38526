"""One file per launcher behind one Protocol: how a run is started, signalled and reaped."""
