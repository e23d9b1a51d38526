"""One file per trainer behind one Protocol: what a framework declares about itself."""
