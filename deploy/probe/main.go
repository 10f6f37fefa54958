// Command probe asks one URL and exits 0 when it answers 200 within three
// seconds. It is the health check of the images, which hold no shell and no
// other program that could ask. Nothing but the container's engine calls it.
package main

import (
	"context"
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
	client := &http.Client{Transport: &http.Transport{Proxy: nil}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("probe: %s answers %s", args[1], answer.Status)
	}
	return answer.Body.Close()
}
