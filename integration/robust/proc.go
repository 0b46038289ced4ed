//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// proc is a process of the run. It dies with this one.
type proc struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how, once done
}

// run starts a process. Each line that it writes to its standard error goes to
// log and to line.
func run(name string, cmd *exec.Cmd, log io.Writer, line func(string)) (*proc, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &proc{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			_, _ = fmt.Fprintln(log, lines.Text()) // for people, who are told of nothing worse
			line(lines.Text())
		}
		p.err = cmd.Wait()
	}()
	return p, nil
}

// signal sends a signal, unless the process has ended.
func (p *proc) signal(s os.Signal) {
	select {
	case <-p.done:
	default:
		_ = p.cmd.Process.Signal(s) // it may have ended just now
	}
}

// kill ends it at once, also if it is stopped.
func (p *proc) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}
