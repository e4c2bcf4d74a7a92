//go:build linux

package lazyfs

import (
	"fmt"
	"os"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Mount mounts the disk on a directory and serves it until it is unmounted. do
// runs what must happen inside the mount namespace that is to see it.
func (d *Disk) Mount(dir string, do func(func() error) error) (unmount func() error, err error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40700,user_id=%d,group_id=%d,default_permissions", fd, os.Getuid(), os.Getgid())
	if err := do(func() error {
		return unix.Mount("lazyfs", dir, "fuse.lazyfs", unix.MS_NOSUID|unix.MS_NODEV, options)
	}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("mount on %s: %w", dir, err)
	}
	detach := func() error {
		return do(func() error { return unix.Unmount(dir, unix.MNT_DETACH) })
	}
	server, err := fuse.NewServer(&protocol{RawFileSystem: fuse.NewDefaultRawFileSystem(), d: d},
		"/dev/fd/"+strconv.Itoa(fd), &fuse.MountOptions{Name: "lazyfs", MaxWrite: 1 << 20, DisableSplice: true})
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", dir, err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve()
	}()
	return func() error {
		err := detach()
		<-served
		return err
	}, nil
}
