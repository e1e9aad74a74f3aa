package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"time"
)

// proxy passes calls to the simulator. It keeps the journal, counts and ends
// sessions, checks passwords of the REST API, and injects faults.
type proxy struct {
	next           http.Handler
	user, password string
	asIs           bool

	mu     sync.Mutex
	calls  []call
	faults []*fault
	soap   map[string]bool // IDs of live sessions
	rest   map[string]bool
	limit  int // maximum number of SOAP sessions; 0: none
	logins int
}

type call struct {
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	Status int       `json:"status"`
	Agent  string    `json:"agent"`
	Millis int64     `json:"millis"`
	Bytes  int       `json:"bytes"`
}

// fault replaces or delays the responses to calls of Method, which may end in `*`.
// Kind is
//   - the name of a fault of the API, such as NoPermission; the REST API responds with
//     the corresponding status
//   - "http": Status, Headers and Body
//   - "empty": searches and listings find nothing
//   - "lost": the call is executed, and the connection closed
//   - "drop": the connection is closed
//   - empty: the call is only delayed
type fault struct {
	Method  string            `json:"method"`
	Kind    string            `json:"kind"`
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	After   int               `json:"after"` // calls that pass first
	Count   *int              `json:"count"` // absent: until the fault is deleted
	Millis  int               `json:"delayMillis"`
}

const (
	soapCookie = "vmware_soap_session"
	restHeader = "vmware-api-session-id"
	restLogin  = "/rest/com/vmware/cis/session"
)

var bodyMethod = regexp.MustCompile(`(?s)<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)`)

// Calls that find nothing with the fault "empty".
var searches = map[string]bool{"FindByUuid": true, "FindAllByDnsName": true, "FindByIp": true, "RetrievePropertiesEx": true}

func newProxy(next http.Handler, user, password string, asIs bool) *proxy {
	p := &proxy{next: next, user: user, password: password, asIs: asIs}
	p.reset()
	return p
}

// reset deletes journal, faults, sessions and limits.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls, p.faults, p.limit, p.logins = nil, nil, 0, 0
	p.soap, p.rest = map[string]bool{}, map[string]bool{}
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	data, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(data))
	method := r.Method + " " + r.URL.Path
	if m := bodyMethod.FindSubmatch(data); m != nil && strings.HasPrefix(r.URL.Path, "/sdk") {
		method = string(m[1])
	}
	response := httptest.NewRecorder()
	isClosed := p.respond(response, r, method)
	status := response.Code
	if isClosed {
		status = 0
	}
	p.mu.Lock()
	p.calls = append(p.calls, call{began, method, status, r.UserAgent(), time.Since(began).Milliseconds(), response.Body.Len()})
	p.mu.Unlock()
	if isClosed {
		panic(http.ErrAbortHandler) // closes the connection without a response
	}
	for k, v := range response.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(response.Code)
	w.Write(response.Body.Bytes())
}

// respond writes the response, and reports whether the connection is closed instead.
func (p *proxy) respond(response *httptest.ResponseRecorder, r *http.Request, method string) bool {
	f := p.faultFor(method)
	if f == nil {
		p.pass(response, r, method)
		return false
	}
	time.Sleep(time.Duration(f.Millis) * time.Millisecond)
	switch f.Kind {
	case "drop":
		return true
	case "lost":
		p.pass(response, r, method)
		return true
	case "empty":
		if searches[method] {
			writeSOAP(response, http.StatusOK, fmt.Sprintf(`<%sResponse xmlns="urn:vim25"></%[1]sResponse>`, method))
			return false
		}
		p.pass(response, r, method)
	case "":
		p.pass(response, r, method)
	case "http":
		for k, v := range f.Headers {
			response.Header().Set(k, v)
		}
		response.WriteHeader(f.Status)
		response.WriteString(f.Body)
	default:
		inject(response, method, f.Kind)
	}
	return false
}

// faultFor returns the first fault that applies. Calls that pass count for each fault.
func (p *proxy) faultFor(method string) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		prefix := strings.TrimSuffix(f.Method, "*")
		switch {
		case method != prefix && (prefix == f.Method || !strings.HasPrefix(method, prefix)):
		case f.After > 0:
			f.After--
		case f.Count == nil:
			return f
		case *f.Count > 0:
			*f.Count--
			return f
		}
	}
	return nil
}

// inject writes a fault of the API, or the status that the REST API has for it.
func inject(w *httptest.ResponseRecorder, method, kind string) {
	if strings.Contains(method, " ") {
		status := map[string]int{"NoPermission": 403, "NotAuthenticated": 401, "InvalidLogin": 401}[kind]
		if status == 0 {
			status = http.StatusInternalServerError
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"type":"com.vmware.vapi.std.errors.%s","value":{"messages":[]}}`, strings.ToLower(kind))
		return
	}
	writeSOAP(w, http.StatusInternalServerError, fmt.Sprintf(`<soapenv:Fault><faultcode>ServerFaultCode</faultcode>`+
		`<faultstring>injected</faultstring><detail><%[1]sFault xmlns="urn:vim25" xsi:type="%[1]s"></%[1]sFault></detail></soapenv:Fault>`, kind))
}

func writeSOAP(w *httptest.ResponseRecorder, status int, body string) {
	w.Header().Set("Content-Type", `text/xml; charset="utf-8"`)
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<soapenv:Body>%s</soapenv:Body></soapenv:Envelope>`, body)
}

// --- sessions ----------------------------------------------------------------

// pass lets the simulator respond, and follows the sessions.
func (p *proxy) pass(response *httptest.ResponseRecorder, r *http.Request, method string) {
	cookie, restID := "", r.Header.Get(restHeader)
	if c, err := r.Cookie(soapCookie); err == nil {
		cookie = c.Value
	}
	isLogin := method == "Login" || method == "LoginByToken" || method == "CloneSession"
	isRestLogin := method == "POST "+restLogin && r.URL.Query().Get("~action") == ""
	p.mu.Lock()
	if cookie != "" && !p.soap[cookie] {
		r.Header.Del("Cookie") // an ended session: the simulator still knows it
		cookie = ""
	}
	isFull := p.limit > 0 && len(p.soap) >= p.limit && isLogin
	isEnded := restID != "" && !p.rest[restID] && !p.soap[restID]
	isShared := p.soap[restID]
	p.mu.Unlock()
	if isShared && !p.asIs {
		r.Header.Set(restHeader, p.bridge())
	}
	switch {
	case isFull:
		http.Error(response, "503 Service Unavailable (too many sessions)", http.StatusServiceUnavailable)
		return
	case isEnded, isRestLogin && !p.asIs && !p.isKnown(r):
		inject(response, method, "NotAuthenticated")
		return
	}
	p.serve(response, r)
	if strings.HasPrefix(r.URL.Path, "/rest/") && !p.asIs {
		correctList(response)
	}
	p.follow(response, method, cookie, restID, isLogin, isRestLogin)
}

// bridge returns a REST session for calls with the ID of a SOAP session, which vCenter
// accepts from 8.0 Update 3 on, and the simulator does not.
func (p *proxy) bridge() string {
	login := httptest.NewRequest(http.MethodPost, restLogin, nil)
	login.SetBasicAuth(p.user, p.password)
	response := httptest.NewRecorder()
	p.next.ServeHTTP(response, login)
	var id struct{ Value string }
	json.Unmarshal(response.Body.Bytes(), &id)
	return id.Value
}

// isKnown returns whether a login has the right password, or another kind of credentials.
func (p *proxy) isKnown(r *http.Request) bool {
	user, password, isBasic := r.BasicAuth()
	return !isBasic || user == p.user && password == p.password
}

// correctList writes an empty list as vCenter does; the simulator writes null.
func correctList(response *httptest.ResponseRecorder) {
	if text := strings.TrimSpace(response.Body.String()); text == "{}" || text == `{"value":null}` {
		response.Body.Reset()
		response.Body.WriteString(`{"value":[]}`)
	}
}

func (p *proxy) follow(response *httptest.ResponseRecorder, method, cookie, restID string, isLogin, isRestLogin bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case isLogin:
		p.logins++
		for _, c := range response.Result().Cookies() {
			if c.Name == soapCookie {
				p.soap[c.Value] = true
			}
		}
	case method == "Logout":
		delete(p.soap, cookie)
	case isRestLogin && response.Code == http.StatusOK:
		var id struct{ Value string }
		if json.Unmarshal(response.Body.Bytes(), &id) == nil {
			p.rest[id.Value] = true
		}
	case method == "DELETE "+restLogin:
		delete(p.rest, restID)
	}
}

// serve answers with an error if the simulator panics.
func (p *proxy) serve(response *httptest.ResponseRecorder, r *http.Request) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Printf("the simulator failed: %v", cause)
			http.Error(response, "the simulator failed, see its log", http.StatusInternalServerError)
		}
	}()
	p.next.ServeHTTP(response, r)
}
