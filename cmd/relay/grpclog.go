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

// grpcLog has what grpc says of errors in the process' log: else it writes lines of its
// own among them, that are neither text nor JSON. Of what is no error grpc says nothing.
// It may be used by any goroutine.
type grpcLog struct {
	grpclog.LoggerV2 // what is not of errors: discarded
	to               atomic.Pointer[slog.Logger]
}

// grpcErrors is where grpc's errors go to: serve sets it.
var grpcErrors = &grpcLog{LoggerV2: grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)}

// logGRPC has grpc log to grpcErrors, unless its environment variable asks for its own
// lines. grpc wants it called before anything else of it.
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

// V implements grpclog.LoggerV2.
func (g *grpcLog) V(int) bool { return false }
