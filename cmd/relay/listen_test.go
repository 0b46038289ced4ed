package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/internal/xdstest"

	"go.uber.org/goleak"
)

// A relay that cannot listen names the setting of the address.
func TestListenErrorsNameTheSetting(t *testing.T) {
	defer goleak.VerifyNone(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(xdstest.Files(t, map[string]string{"relay.yaml": "upstream: {origins: [{address: 'file:.'}]}\n" +
		"downstream: {address: '127.0.0.1:0'}\nadmin: {address: '127.0.0.1:0'}\n"}), "relay.yaml")
	for _, setting := range []string{"downstream.address", "downstream.rest_address", "admin.address", "admin.grpc_address"} {
		code, _, errs := runRelay("serve", "--config", file, "--"+setting, taken.Addr().String())
		if code == 0 || !strings.Contains(errs, setting+": listen tcp "+taken.Addr().String()) {
			t.Errorf("%s: %d %s", setting, code, errs)
		}
	}
}
