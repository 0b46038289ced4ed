//go:build !linux

package listener

import (
	"net"
	"time"
)

// acknowledged returns false: only Linux says how many bytes the other host has acknowledged.
func acknowledged(net.Conn) (n int64, ok bool) { return 0, false }

// setUserTimeout does nothing: only Linux has this time.
func setUserTimeout(net.Conn, time.Duration) {}
