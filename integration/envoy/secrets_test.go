package envoy

import (
	"errors"
	"slices"
	"testing"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// Without an identity an Envoy gets no secrets by default: its TLS listener
// keeps warming, the refusal is counted, and the origin is not asked.
func TestSecretsNeedIdentity(t *testing.T) {
	t.Parallel()
	s := newScene(t, adsDelta, sceneOptions{})
	source := s.way.source
	s.origin.Put("edge", append(web(source, xdstest.StartHTTPBackend(t, "blue")),
		withCertificate(xdstest.HTTPListener("tls", xdstest.Manager("in", source)), "server", source),
		certificate("server", tlstest.NewAuthority(t).Pair(t, tlstest.DNS("in.example.com"))))...)
	e := s.envoy("envoy-1", nil)
	xdstest.Eventually(t, "the TLS listener warms without secrets", func() error {
		warming, err := e.warming()
		if err == nil && !slices.Contains(warming, "listener tls") {
			err = errors.New("the listener does not warm yet")
		}
		if err == nil && s.relay.Metric("refused_total", "reason", "secrets") == 0 {
			err = errors.New("no refusal is counted")
		}
		return err
	})
	if asked := s.origin.Requests(func(r xdstest.Request) bool { return r.Type == sds }); len(asked) > 0 {
		t.Errorf("the origin was asked for secrets: %+v", asked)
	}
}

// An Envoy whose certificate is for another node gets nothing, not even
// clusters.
func TestIdentityOfAnotherNode(t *testing.T) {
	t.Parallel()
	s := newScene(t, adsMTLS, sceneOptions{})
	s.origin.Put("edge", web(s.way.source, xdstest.StartHTTPBackend(t, "blue"))...)
	e := s.envoy("envoy-1", func(b bootstrap) { s.tls.identify(b, "envoy-2") })
	xdstest.Eventually(t, "refused attempts", func() error {
		if e.stat("cluster_manager.cds.update_failure") < 2 {
			return errors.New("Envoy was not refused twice yet")
		}
		return nil
	})
	if s.relay.Metric("refused_total", "reason", "identity") == 0 {
		t.Error("the relay counts no refusal for the identity")
	}
	if n := e.stat("cluster_manager.cds.update_success"); n != 0 {
		t.Errorf("Envoy got clusters %d times", n)
	}
}
