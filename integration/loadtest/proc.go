//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cpu is the CPU time of a process, user and system. It uses the process's clock
// (clock_getcpuclockid(3)), because /proc/PID/stat has a resolution of 10 ms.
func cpu(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED: nanoseconds of its threads on a processor
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, fmt.Errorf("cpu clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// resident is the resident memory of a process, in bytes.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm: %q", pid, text)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// A server that used at least quietCPU in quietTime is still busy with the round: with ACKs, or its
// garbage.
const (
	quietTime = 20 * time.Millisecond
	quietCPU  = 500 * time.Microsecond
	quietMost = 10 * time.Second
)

// settle waits until a process is quiet, and returns its CPU time until then.
func settle(pid int) (time.Duration, error) { return settleFor(pid, quietMost) }

// settleFor is settle with another bound.
func settleFor(pid int, most time.Duration) (time.Duration, error) {
	was, err := cpu(pid)
	if err != nil {
		return 0, err
	}
	for end := time.Now().Add(most); ; {
		time.Sleep(quietTime)
		now, err := cpu(pid)
		if err != nil || now-was < quietCPU {
			return now, err
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("process %d is not quiet %s after a round", pid, most)
		}
		was = now
	}
}
