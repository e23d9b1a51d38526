"""One file per metric source behind one Protocol, and the collector that polls them."""
