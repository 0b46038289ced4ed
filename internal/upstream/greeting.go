package upstream

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// dialed is a connection to an origin. Safe for concurrent use.
type dialed struct {
	cc      *grpc.ClientConn
	timeout time.Duration // of an attempt to connect
}

// unopened is the error of a stream that could not be opened in time.
func (d *dialed) unopened(in time.Duration) error {
	if d.cc.GetState() == connectivity.Ready {
		return fmt.Errorf("connected, but no stream could be opened within %s", in)
	}
	return fmt.Errorf("not connected within %s", in)
}

// explain rewrites an error of connecting where gRPC's text does not say what
// happened: the origin does not speak HTTP/2, or did not within the timeout.
func (d *dialed) explain(err error) error {
	_, what, ok := strings.Cut(err.Error(), "error reading server preface: ")
	switch {
	case !ok:
		return err
	case strings.Contains(what, "use of closed network connection"):
		return fmt.Errorf("connected, but no HTTP/2 within %s", d.timeout)
	case strings.Contains(what, "http2: "):
		return errors.New("connected, but what answers does not speak HTTP/2; if it wants TLS, give upstream.origins[].tls")
	}
	return err
}
