package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"net/url"
	"strings"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/simulator"
)

// control is the control port for tests. README.md lists the requests.
type control struct {
	proxy     *proxy
	inventory *inventory
	service   *simulator.Service
	server    *url.URL
	original  string // password at the start
}

func (c *control) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/reset", c.reset)
	mux.HandleFunc("/calls", c.calls)
	mux.HandleFunc("/counts", c.counts)
	mux.HandleFunc("/faults", c.faults)
	mux.HandleFunc("/sessions", c.sessions)
	mux.HandleFunc("/pages", c.pages)
	mux.HandleFunc("/password", c.password)
	mux.HandleFunc("/machines", func(w http.ResponseWriter, r *http.Request) { write(w, c.inventory.describe()) })
	mux.HandleFunc("/machines/", c.machine)
	mux.HandleFunc("/session-manager", c.sessionManager)
	return mux
}

func write(w http.ResponseWriter, v interface{}) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	e.Encode(v)
}

// read parses the body of a request; if it cannot, it responds and returns false.
func read(w http.ResponseWriter, r *http.Request, into interface{}) bool {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// fail responds with an error and returns true, if there is one.
func fail(w http.ResponseWriter, err error) bool {
	if err != nil {
		log.Print(err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	return err != nil
}

func (c *control) reset(w http.ResponseWriter, r *http.Request) {
	setPageLimit(0)
	c.setPassword(c.original)
	if fail(w, c.inventory.restore(c.service)) {
		return
	}
	c.proxy.reset()
	write(w, c.inventory.describe())
}

func (c *control) calls(w http.ResponseWriter, r *http.Request) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodDelete {
		p.calls = nil
	}
	write(w, append([]call{}, p.calls...))
}

func (c *control) counts(w http.ResponseWriter, r *http.Request) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := map[string]int{}
	for _, c := range p.calls {
		counts[c.Method]++
	}
	write(w, counts)
}

// faults adds a list of faults, or deletes all.
func (c *control) faults(w http.ResponseWriter, r *http.Request) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.Method {
	case http.MethodPost:
		var added []*fault
		if !read(w, r, &added) {
			return
		}
		p.faults = append(p.faults, added...)
	case http.MethodDelete:
		p.faults = nil
	}
	write(w, append([]*fault{}, p.faults...))
}

// sessions returns the numbers of live sessions. DELETE ends all, as an expiry does;
// POST sets the maximum.
func (c *control) sessions(w http.ResponseWriter, r *http.Request) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.Method {
	case http.MethodDelete:
		p.soap, p.rest = map[string]bool{}, map[string]bool{}
	case http.MethodPost:
		var s struct{ Limit int }
		if !read(w, r, &s) {
			return
		}
		p.limit = s.Limit
	}
	write(w, map[string]int{"soap": len(p.soap), "rest": len(p.rest), "logins": p.logins, "limit": p.limit})
}

// pages sets the maximum number of objects on a page, below what clients ask for.
func (c *control) pages(w http.ResponseWriter, r *http.Request) {
	var s struct{ Limit int32 }
	if read(w, r, &s) {
		setPageLimit(s.Limit)
		write(w, s)
	}
}

// password changes the password, and ends all sessions.
func (c *control) password(w http.ResponseWriter, r *http.Request) {
	var s struct{ Password string }
	if read(w, r, &s) {
		c.setPassword(s.Password)
		write(w, s)
	}
}

func (c *control) setPassword(password string) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	p.password = password
	p.soap, p.rest = map[string]bool{}, map[string]bool{}
	c.service.Listen.User = url.UserPassword(p.user, password)
}

// machine changes or creates a VM (POST), or deletes it (DELETE).
func (c *control) machine(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/machines/")
	ref := byPath("VirtualMachine:" + name)
	if ref == nil && r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	var m machine
	if r.Method == http.MethodPost && !read(w, r, &m) {
		return
	}
	if ref == nil {
		vm, err := create(c.service, name, m)
		if !fail(w, err) {
			write(w, describe(vm))
		}
		return
	}
	vm := simulator.Map.Get(*ref).(*simulator.VirtualMachine)
	switch r.Method {
	case http.MethodPost:
		simulator.Map.WithLock(vm, func() { change(vm, m) })
	case http.MethodDelete:
		if fail(w, destroy(c.service, vm)) {
			return
		}
	}
	write(w, describe(vm))
}

// sessionManager is the shared-session service: it returns a clone ticket for a bearer token.
func (c *control) sessionManager(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+c.proxy.password {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	address := *c.server
	address.User = url.UserPassword(c.proxy.user, c.proxy.password)
	client, err := govmomi.NewClient(context.Background(), &address, true)
	if fail(w, err) {
		return
	}
	ticket, err := session.NewManager(client.Client).AcquireCloneTicket(context.Background())
	if !fail(w, err) {
		write(w, map[string]string{"token": ticket})
	}
}
