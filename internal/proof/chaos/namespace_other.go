//go:build !linux

package chaos

import (
	"context"
	"errors"
	"os"
)

// Seclude does nothing: this system has no mount namespaces.
func Seclude(context.Context, Config, []string) (code int, done bool) { return 0, false }

func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
