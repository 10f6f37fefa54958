package queue

import "time"

// Stats is what /health tells about Redis and the pool of one publisher.
type Stats struct {
	// Latency is the round trip of one PING, and zero when it failed.
	Latency time.Duration
	// Size is the most connections that the pool keeps; Total are open, Idle of
	// them wait for use. Stale counts those removed since the start.
	Size, Total, Idle, Stale int
	// Hits, Misses and Timeouts count, since the start, how often a free
	// connection was found, was not found, and did not come in time.
	Hits, Misses, Timeouts int
	// Utilisation is the share of Size in use, 0 to 1.
	Utilisation float64
}
