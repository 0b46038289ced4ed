package relay

import (
	"math"
	"syscall"

	"xdsrelay/config"
)

// otherFiles is how many files the relay opens at most besides the connections of clients and to
// origins: its own files, and connections to admin.
const otherFiles = 100

// openFiles returns the process' limit of open files; 0: there is none.
func openFiles() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur > math.MaxInt32 {
		return 0
	}
	return int(files.Cur)
}

// autoConnections is downstream.limits.connections if that is auto: what the limit of open files
// leaves; 0: no limit. The reserve is for otherFiles and the connections to origins. It is at most
// half of the limit.
func autoConnections(c *config.Config, files int) config.Count {
	if files == 0 {
		return 0
	}
	keys := c.Downstream.Limits.Keys
	if keys == 0 {
		keys = config.Default().Downstream.Limits.Keys
	}
	each := max(1, c.Upstream.StreamsPerConnection)
	reserve := otherFiles + len(c.Upstream.Origins)*((keys+each-1)/each)
	return config.Count(max(1, files-min(reserve, files/2)))
}
