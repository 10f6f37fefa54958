package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// diskSize is what a PostgreSQL with the load of some minutes needs, and
// little more.
const diskSize = 768 << 20

// disk is a small file system of its own for one server: an image on the disk
// that we are on, so that it waits for it as any other, or memory where the
// machine has no loop device left.
type disk struct{ dir, image string }

// newDisk mounts one below dir. We are in a mount namespace of our own, so
// that it is gone with us, however we end; see Seclude.
func newDisk(ctx context.Context, dir, name string) (*disk, error) {
	d := &disk{dir: filepath.Join(dir, name), image: filepath.Join(dir, name+".img")}
	if err := os.Mkdir(d.dir, 0o755); err != nil { // the server's account passes through
		return nil, err
	}
	err := d.onImage(ctx)
	if err != nil {
		_ = os.Remove(d.image)
		d.image = ""
		inMemory := run(ctx, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=755", diskSize), "tmpfs", d.dir)
		if inMemory != nil {
			return nil, errors.Join(err, inMemory)
		}
	}
	return d, nil
}

func (d *disk) onImage(ctx context.Context) error {
	file, err := os.OpenFile(d.image, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Truncate(diskSize), file.Close()); err != nil {
		return err
	}
	// Without a reserve for root, to which we belong and the server does not.
	if err := run(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", d.image); err != nil {
		return err
	}
	return run(ctx, "mount", "-o", "loop", d.image, d.dir)
}

// fill takes all the space that is left, until release.
func (d *disk) fill() error {
	file, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	defer file.Close() // its size is what counts
	end := int64(0)
	for piece := int64(64 << 20); piece >= 4<<10; {
		if err := allocate(file, end, piece); err != nil {
			piece /= 2
			continue
		}
		end += piece
	}
	if end == 0 {
		return fmt.Errorf("%s could not be filled", d.dir)
	}
	return nil
}

func (d *disk) ballast() string { return filepath.Join(d.dir, "ballast") }

func (d *disk) release() error { return os.Remove(d.ballast()) }

func (d *disk) close() error {
	err := run(context.Background(), "umount", d.dir)
	return errors.Join(err, os.RemoveAll(d.dir), os.RemoveAll(d.image))
}

func run(ctx context.Context, name string, args ...string) error {
	if said, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, said)
	}
	return nil
}
