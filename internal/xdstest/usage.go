package xdstest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Usage is what a process has used so far, as Linux's /proc has it.
type Usage struct {
	RSS int           // bytes of resident memory
	CPU time.Duration // user and system time since its start
}

// Usage reads the process's usage. It fails the test if the process has ended.
func (p *Process) Usage() Usage {
	p.t.Helper()
	dir := "/proc/" + strconv.Itoa(p.PID())
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		p.t.Fatal(err)
	}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		p.t.Fatal(err)
	}
	var kb, user, system int
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	if _, err := fmt.Sscan(string(rest), &kb); err != nil {
		p.t.Fatalf("%s/status: %v", dir, err)
	}
	// Fields 14 and 15. The second field is the name in parentheses.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if _, err := fmt.Sscan(string(fields[11])+" "+string(fields[12]), &user, &system); err != nil {
		p.t.Fatalf("%s/stat: %v", dir, err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every platform of Linux that runs Envoy
	return Usage{RSS: kb << 10, CPU: time.Duration(user+system) * tick}
}
