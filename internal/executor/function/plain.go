//go:build !chaos

package function

// trials are the modules of a build that is made to be disturbed: none here.
func trials() map[string]Module { return nil }
