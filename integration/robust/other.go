//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "robust: needs Linux, where children die with their parent")
	os.Exit(1)
}
