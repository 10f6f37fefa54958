//go:build !profile

package program

// profiled does nothing, but in a build with the tag profile.
func profiled(string) (stop func()) { return func() {} }
