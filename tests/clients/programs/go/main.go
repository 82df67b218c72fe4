// An agent for Go's two Kafka clients: commands in JSON lines on stdin, answers on stdout.
//
//	agent franz-go|sarama HOST:PORT
//	agent copy ...                   another program: copier.go
//
// tests/clients/agents/driver.py says what each command means. Everything of a library is in its
// own file; this one only reads, dispatches and writes.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"
)

const (
	patience       = 60 * time.Second
	sessionTimeout = 6 * time.Second // the least that a broker allows by default
)

type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

type record struct {
	Topic     string   `json:"topic,omitempty"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp int64    `json:"timestamp"`
}

type command struct {
	Op           string            `json:"op"`
	Topic        string            `json:"topic"`
	Topics       []string          `json:"topics"`
	Partition    int32             `json:"partition"`
	Partitions   int32             `json:"partitions"`
	Configs      map[string]string `json:"configs"`
	Codec        string            `json:"codec"`
	Records      []record          `json:"records"`
	Offset       int64             `json:"offset"`
	Count        int               `json:"count"`
	Rate         int               `json:"rate"`
	Timestamp    int64             `json:"timestamp"`
	Name         string            `json:"name"`
	Group        string            `json:"group"`
	Strategy     string            `json:"strategy"`
	Instance     string            `json:"instance"`
	AutoCommitMs int               `json:"auto_commit_ms"`
	Committed    bool              `json:"committed"`
	ID           string            `json:"id"`
	TimeoutMs    int               `json:"timeout_ms"`
	Value        []byte            `json:"value"`
	Commit       bool              `json:"commit"`
	CA           string            `json:"ca"`
	Mechanism    string            `json:"mechanism"`
	User         string            `json:"user"`
	Password     string            `json:"password"`
	Token        string            `json:"token"`
}

// A member of a group, reading in the background.
type member interface {
	held() *holdings
	commit(next map[partition]int64) error
	seek(at partition, offset int64) error
	leave() error
}

// A producer that writes numbers in the background.
type writer interface {
	written() map[string]any
	finish() (map[string]any, error)
}

// A transactional producer.
type transactional interface {
	begin() error
	put(topic string, partition int32, value []byte) error
	offsets(wanted command) error
	end(commit bool) error
	close() error
}

type client interface {
	connect() error
	create(topic string, partitions int32, configs map[string]string) error
	produce(topic, codec string, records []record) ([]int64, error)
	read(wanted command) ([]record, error)
	offsetAt(topic string, partition int32, timestamp int64) (int64, error)
	join(wanted command) (member, error)
	write(wanted command) (writer, error)
	transactional(wanted command) (transactional, error)
}

var errUnsupported = errors.New("unsupported")

var modules = map[string]string{
	"franz-go": "github.com/twmb/franz-go",
	"sarama":   "github.com/IBM/sarama",
}

func version(library string) string {
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, module := range built.Deps {
			if module.Path == modules[library] {
				return module.Version
			}
		}
	}
	return "?"
}

func main() {
	library, bootstrap := os.Args[1], os.Args[2]
	if library == "copy" {
		copyRecords(os.Args[2:])
	}
	var clients client
	switch library {
	case "franz-go":
		clients = &franz{bootstrap}
	case "sarama":
		clients = &saramas{bootstrap}
	default:
		fmt.Fprintln(os.Stderr, "no such client:", library)
		os.Exit(2)
	}
	open := begun{map[string]member{}, map[string]writer{}, map[string]transactional{}}
	lines, answers := bufio.NewReaderSize(os.Stdin, 1<<20), json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		var wanted command
		var value any
		if err = json.Unmarshal(line, &wanted); err == nil {
			if wanted.Op == "version" {
				value = version(library)
			} else {
				value, err = do(clients, open, wanted)
			}
		}
		answer := map[string]any{"ok": value}
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		if err := answers.Encode(answer); err != nil {
			break
		}
	}
}

// What goes on between commands, by name.
type begun struct {
	members       map[string]member
	writers       map[string]writer
	transactional map[string]transactional
}

func do(clients client, open begun, wanted command) (any, error) {
	switch wanted.Op {
	case "secure":
		return nil, secure(wanted)
	case "connect":
		return nil, clients.connect()
	case "create":
		return nil, clients.create(wanted.Topic, wanted.Partitions, wanted.Configs)
	case "produce":
		return clients.produce(wanted.Topic, wanted.Codec, wanted.Records)
	case "read":
		return clients.read(wanted)
	case "offset_at":
		return clients.offsetAt(wanted.Topic, wanted.Partition, wanted.Timestamp)
	case "join":
		made, err := clients.join(wanted)
		if err == nil {
			open.members[wanted.Name] = made
		}
		return nil, err
	case "write":
		made, err := clients.write(wanted)
		if err == nil {
			open.writers[wanted.Name] = made
		}
		return nil, err
	case "written", "finish":
		one, ok := open.writers[wanted.Name]
		if !ok {
			return nil, fmt.Errorf("no writer %q for %q", wanted.Name, wanted.Op)
		}
		if wanted.Op == "written" {
			return one.written(), nil
		}
		delete(open.writers, wanted.Name)
		return one.finish()
	case "transactional":
		made, err := clients.transactional(wanted)
		if err == nil {
			open.transactional[wanted.Name] = made
		}
		return nil, err
	case "begin", "put", "offsets", "end", "close":
		one, ok := open.transactional[wanted.Name]
		if !ok {
			return nil, fmt.Errorf("no transactional producer %q for %q", wanted.Name, wanted.Op)
		}
		return nil, transact(one, wanted)
	}
	one, ok := open.members[wanted.Name]
	if !ok {
		return nil, fmt.Errorf("no member %q for %q", wanted.Name, wanted.Op)
	}
	switch wanted.Op {
	case "assigned":
		return one.held().show(), nil
	case "take":
		return one.held().take(), nil
	case "commit":
		return nil, one.commit(one.held().positions())
	case "seek":
		at := partition{wanted.Topic, wanted.Partition}
		one.held().forget(at)
		return nil, one.seek(at, wanted.Offset)
	case "leave":
		delete(open.members, wanted.Name)
		return nil, one.leave()
	}
	return nil, fmt.Errorf("no such command: %q", wanted.Op)
}

func transact(one transactional, wanted command) error {
	switch wanted.Op {
	case "begin":
		return one.begin()
	case "put":
		return one.put(wanted.Topic, wanted.Partition, wanted.Value)
	case "offsets":
		return one.offsets(wanted)
	case "end":
		return one.end(wanted.Commit)
	}
	return one.close()
}
