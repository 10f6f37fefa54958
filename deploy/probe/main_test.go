package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/fine" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	encrypted := httptest.NewTLSServer(server.Config.Handler)
	defer encrypted.Close()
	tests := []struct {
		name string
		args []string
		ok   bool
	}{
		{"200", []string{"probe", server.URL + "/fine"}, true},
		{"200 over TLS", []string{"probe", strings.Replace(encrypted.URL, "https", "http", 1) + "/fine"}, true},
		{"503 over TLS", []string{"probe", strings.Replace(encrypted.URL, "https", "http", 1) + "/"}, false},
		{"503", []string{"probe", server.URL + "/"}, false},
		{"nobody listens", []string{"probe", "http://127.0.0.1:1/"}, false},
		{"no URL", []string{"probe"}, false},
		{"not a URL", []string{"probe", "://"}, false},
	}
	for _, tt := range tests {
		if err := probe(tt.args); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want ok %v", tt.name, err, tt.ok)
		}
	}
}
