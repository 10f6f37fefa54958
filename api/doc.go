// Package api is the HTTP contract in Go: types, chi server, client and the
// contract itself, all generated from openapi.yaml.
//
// It owns nothing of its own: every file but this one is written by the
// generator and never edited. Package rest implements the server and refuses
// what the contract does not allow; the client is for the command line, load
// generators and tests. The TypeScript client, in the folder typescript, comes
// from the same contract; "make client" builds and tries it.
package api

//go:generate go run ../internal/rest/contract/responses ../openapi.yaml
//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config models.yaml ../openapi.yaml
//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config server.yaml ../openapi.yaml
//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config client.yaml ../openapi.yaml
//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config contract.yaml ../openapi.yaml
