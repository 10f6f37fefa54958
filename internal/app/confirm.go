package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// answerWithin is how long a person has to answer: a terminal may have nobody
// in front of it.
const answerWithin = 30 * time.Second

// confirm tells the person who started the program what it is going to install.
// On a terminal it asks first; elsewhere the line is all.
func confirm(ctx context.Context, sentence string) bool {
	if !foreground(os.Stdin) || !foreground(os.Stderr) {
		_, err := fmt.Fprintln(os.Stderr, sentence)
		return err == nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return ask(ctx, os.Stdin, os.Stderr, sentence)
}

// ask puts a question whose answer is yes unless somebody says no. It gives up
// with its context: yes when nobody answered in time, no when the program is
// told to stop.
func ask(ctx context.Context, in io.Reader, out io.Writer, sentence string) bool {
	fmt.Fprintf(out, "%s. Go on? [Y/n] ", sentence)
	answer := make(chan string, 1)
	go func() { // it may wait for a line that never comes, until the program ends
		line, _ := bufio.NewReader(in).ReadString('\n') // the end of the input is no answer
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case said := <-answer:
		return !strings.HasPrefix(said, "n")
	case <-ctx.Done():
		fmt.Fprintln(out)
		return ctx.Err() == context.DeadlineExceeded
	}
}

// foreground reports whether a file is a terminal that we may read from: a
// process in the background would be stopped by it.
func foreground(f *os.File) bool {
	var group int32
	_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
	return failed == 0 && int(group) == syscall.Getpgrp()
}
