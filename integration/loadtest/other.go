//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "loadtest: needs Linux: clients use epoll, and CPU time is read from the kernel's clocks of processes")
	os.Exit(1)
}
