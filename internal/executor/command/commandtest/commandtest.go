// Package commandtest says whether this machine can isolate commands with bubblewrap.
package commandtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Bubblewrap answers an error where bubblewrap is missing, or where the kernel lets it
// make no namespaces, as in many containers. It asks bubblewrap itself and not our code,
// so that a test that is skipped for this error hides no fault of ours.
func Bubblewrap(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "bwrap", "--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "true")
	cmd.Dir = "/"
	if os.Geteuid() == 0 { // programs run as nobody, who may be allowed less
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("bubblewrap is missing (apt-get install bubblewrap) or cannot work here: %w %s", err, out)
	}
	return nil
}
