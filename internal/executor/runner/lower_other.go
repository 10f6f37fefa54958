//go:build !linux

package runner

// lower lowers the priority of the process: here it stays.
func (p *process) lower() {}
