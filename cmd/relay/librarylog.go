package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc/grpclog"
)

// libraryLog writes the errors of grpc and of OpenTelemetry to the process' log. Without it, they
// would write lines of their own formats between those of the log. It drops grpc's warnings and
// information. It is safe for concurrent use.
type libraryLog struct {
	grpclog.LoggerV2 // drops warnings and information
	to               atomic.Pointer[slog.Logger]
}

// libraryErrors is the process' libraryLog. serve sets its destination.
var libraryErrors = &libraryLog{LoggerV2: grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)}

// logLibraries makes OpenTelemetry and grpc log to libraryErrors, grpc unless its environment variable
// asks for its own lines. It must be called before any other function of grpc.
func logLibraries() {
	otel.SetErrorHandler(libraryErrors)
	if os.Getenv("GRPC_GO_LOG_SEVERITY_LEVEL") == "" {
		grpclog.SetLoggerV2(libraryErrors)
	}
}

func (g *libraryLog) say(library, text string) {
	log := g.to.Load()
	if log == nil {
		log = slog.Default()
	}
	log.Error("library reports an error", "library", library, "error", strings.TrimSpace(text))
}

func (g *libraryLog) Error(args ...any)                 { g.say("grpc", fmt.Sprint(args...)) }
func (g *libraryLog) Errorln(args ...any)               { g.say("grpc", fmt.Sprintln(args...)) }
func (g *libraryLog) Errorf(format string, args ...any) { g.say("grpc", fmt.Sprintf(format, args...)) }

func (g *libraryLog) V(int) bool { return false }

// Handle implements otel.ErrorHandler.
func (g *libraryLog) Handle(err error) { g.say("OpenTelemetry", err.Error()) }
