package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/grpclog"
)

// grpcLog writes grpc's errors to the process' log. Without it, grpc would write lines of its own
// format between those of the log. It drops warnings and information. It is safe for concurrent
// use.
type grpcLog struct {
	grpclog.LoggerV2 // drops warnings and information
	to               atomic.Pointer[slog.Logger]
}

// grpcErrors is the process' grpcLog. serve sets its destination.
var grpcErrors = &grpcLog{LoggerV2: grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)}

// logGRPC makes grpc log to grpcErrors, unless grpc's environment variable asks for its own lines.
// It must be called before any other function of grpc.
func logGRPC() {
	if os.Getenv("GRPC_GO_LOG_SEVERITY_LEVEL") == "" {
		grpclog.SetLoggerV2(grpcErrors)
	}
}

func (g *grpcLog) say(text string) {
	log := g.to.Load()
	if log == nil {
		log = slog.Default()
	}
	log.Error("grpc reports an error", "error", strings.TrimSpace(text))
}

func (g *grpcLog) Error(args ...any)                 { g.say(fmt.Sprint(args...)) }
func (g *grpcLog) Errorln(args ...any)               { g.say(fmt.Sprintln(args...)) }
func (g *grpcLog) Errorf(format string, args ...any) { g.say(fmt.Sprintf(format, args...)) }

func (g *grpcLog) V(int) bool { return false }
