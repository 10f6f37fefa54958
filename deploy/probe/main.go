// Command probe asks one URL and exits 0 when it answers 200 within three
// seconds. It is the health check of the images, which hold no shell and no
// other program that could ask. Where the API has a certificate, http is asked
// over TLS. Nothing but the container's engine calls it.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := probe(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func probe(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: probe URL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, args[1], nil)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	// It asks its own container and sends nothing, so any certificate will do.
	client := &http.Client{Transport: &http.Transport{Proxy: nil, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}}}
	answer, err := client.Do(request)
	if err == nil && answer.StatusCode == http.StatusBadRequest && request.URL.Scheme == "http" {
		_ = answer.Body.Close() // so answers a listener with a certificate
		request.URL.Scheme = "https"
		answer, err = client.Do(request)
	}
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("probe: %s answers %s", args[1], answer.Status)
	}
	return answer.Body.Close()
}
