package logging

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc/grpclog"
)

// libraryLog writes the lines of grpc and the errors of OpenTelemetry to the process' log. Without it,
// they would write lines of their own formats between those of the log, and wait for stderr. It is
// safe for concurrent use.
type libraryLog struct{ to atomic.Pointer[slog.Logger] }

// libraryErrors is the process' libraryLog. SendLibrariesTo sets its destination.
var libraryErrors = new(libraryLog)

// CaptureLibraries makes OpenTelemetry and grpc log to libraryErrors. It must be called before any
// other function of grpc.
func CaptureLibraries() {
	otel.SetErrorHandler(libraryErrors)
	grpclog.SetLoggerV2(libraryErrors.grpc(os.Getenv("GRPC_GO_LOG_SEVERITY_LEVEL"), os.Getenv("GRPC_GO_LOG_VERBOSITY_LEVEL")))
}

// SendLibrariesTo sets the log that gets the lines of the libraries.
func SendLibrariesTo(log *slog.Logger) { libraryErrors.to.Store(log) }

// grpc makes grpc's logger, with the values of its two environment variables.
func (g *libraryLog) grpc(severity, verbosity string) grpclog.LoggerV2 {
	v, _ := strconv.Atoi(verbosity) // grpc ignores errors too
	switch strings.ToLower(severity) {
	case "info":
		return grpclog.NewLoggerV2WithVerbosity(g, io.Discard, io.Discard, v)
	case "warning":
		return grpclog.NewLoggerV2WithVerbosity(io.Discard, g, io.Discard, v)
	}
	return grpclog.NewLoggerV2WithVerbosity(io.Discard, io.Discard, g, v)
}

// Write logs a line of grpc's logger, such as "2026/05/01 12:00:00 WARNING: text".
func (g *libraryLog) Write(line []byte) (int, error) {
	before, text, _ := strings.Cut(string(line), ": ")
	switch before[strings.LastIndexByte(before, ' ')+1:] {
	case "INFO":
		g.log(slog.LevelInfo, "library reports", "grpc", "text", text)
	case "WARNING":
		g.log(slog.LevelWarn, "library reports", "grpc", "text", text)
	default:
		g.log(slog.LevelError, "library reports an error", "grpc", "error", text)
	}
	return len(line), nil
}

func (g *libraryLog) log(level slog.Level, msg, library, key, text string) {
	log := g.to.Load()
	if log == nil {
		log = slog.Default()
	}
	log.Log(context.Background(), level, msg, "library", library, key, strings.TrimSpace(text))
}

// Handle implements otel.ErrorHandler.
func (g *libraryLog) Handle(err error) {
	g.log(slog.LevelError, "library reports an error", "OpenTelemetry", "error", err.Error())
}
