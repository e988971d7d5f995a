package process

// GiveUp is called when the supervisor does not report the end of a stopped process in time.
func (p *Process) GiveUp() { p.giveUp() }
