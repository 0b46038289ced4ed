package filewatch

import (
	"os"
	"syscall"
)

// inode is what os.FileInfo leaves out.
type inode struct {
	changed  syscall.Timespec // ctime
	uid, gid uint32
}

func inodeOf(i os.FileInfo) inode {
	s, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}
	}
	return inode{s.Ctim, s.Uid, s.Gid}
}
