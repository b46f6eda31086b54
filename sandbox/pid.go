package sandbox

// Pid is the broker's process; zero where it does not run here as one.
func (a *Apache) Pid() int {
	if a.process == nil {
		return 0
	}
	return a.process.cmd.Process.Pid
}
