//go:build !linux

package runner

import "time"

// lower lowers the priority of the process: here it stays.
func (p *process) lower() {}

// processorTime is not known here.
func (p *process) processorTime() time.Duration { return 0 }
