//go:build profile

package program

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profiled begins to note where the process spends its processor time. stop writes that into
// a file of the directory CPU_PROFILES, for the compiler: see `make profile`.
func profiled(name string) (stop func()) {
	path := filepath.Join(os.Getenv("CPU_PROFILES"), fmt.Sprintf("%s-%d.pprof", name, os.Getpid()))
	file, err := os.Create(path)
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		panic(err) // this program was built for the profile alone
	}
	return func() {
		pprof.StopCPUProfile()
		if err := file.Close(); err != nil {
			panic(err)
		}
	}
}
