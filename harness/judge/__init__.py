"""Facts to checks to gates to verdict to report: pure functions of what lies in the out-dir."""
