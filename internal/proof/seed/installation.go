package seed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/google/uuid"
)

// installation is one that `make run` has started: its API, and a token for it.
type installation struct {
	api, token, echo string
	client           *http.Client
}

// readInstallation reads what the standalone program leaves in DATA_DIR for a shell.
func readInstallation(dir string) (installation, error) {
	text, err := os.ReadFile(filepath.Join(dir, "tokens"))
	if errors.Is(err, os.ErrNotExist) {
		return installation{}, fmt.Errorf("%s holds no installation: start one with `make run` and leave it running", dir)
	}
	if err != nil {
		return installation{}, fmt.Errorf("read the tokens: %w", err)
	}
	value := func(name string) string {
		if found := regexp.MustCompile(`\b` + name + `=(\S+)`).FindSubmatch(text); found != nil {
			return string(found[1])
		}
		return ""
	}
	return installation{api: value("API"), token: value("ADMIN_TOKEN"), echo: value("ECHO"), client: &http.Client{Timeout: time.Minute}}, nil
}

// createTemplates makes one job of each kind through the API, and answers their ids in the
// order of kinds.
func (i installation) createTemplates(ctx context.Context) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, len(kinds))
	for n, k := range kinds {
		definition, err := json.Marshal(k.definition(i.echo))
		if err != nil {
			return nil, fmt.Errorf("the job %q: %w", k.name, err)
		}
		if ids[n], err = i.createJob(ctx, definition); err != nil {
			return nil, fmt.Errorf("the job %q: %w", k.name, err)
		}
	}
	return ids, nil
}

func (i installation) createJob(ctx context.Context, definition []byte) (uuid.UUID, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, i.api+"/jobs", bytes.NewReader(definition))
	if err != nil {
		return uuid.Nil, err
	}
	request.Header.Set("Authorization", "Bearer "+i.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := i.client.Do(request)
	if err != nil {
		return uuid.Nil, fmt.Errorf("the installation does not answer; is it running? %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return uuid.Nil, err
	}
	if response.StatusCode != http.StatusCreated {
		return uuid.Nil, fmt.Errorf("the API answers %s: %s", response.Status, answer)
	}
	var created struct {
		ID uuid.UUID `json:"id"`
	}
	return created.ID, json.Unmarshal(answer, &created)
}
