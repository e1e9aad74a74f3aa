// A vCenter on loopback: the simulator of Debian's govmomi package, with corrections
// of what a cloud provider would notice (corrections.go), an inventory from a file
// (inventory.go), a proxy with sessions and faults (proxy.go), and a control port
// (control.go).
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	// Register the REST API (tagging), the lookup service and the token service.
	_ "github.com/vmware/govmomi/lookup/simulator"
	_ "github.com/vmware/govmomi/sts/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator"
)

func main() {
	name := flag.String("name", "vcenter-1", "name of the vCenter and of the files")
	out := flag.String("out", ".", "folder that receives NAME.json, NAME.env and NAME.ca.pem")
	inventoryFile := flag.String("inventory", "", "inventory (JSON)")
	user := flag.String("user", "administrator@vsphere.local", "user name")
	asIs := flag.Bool("as-is", false, "leave the simulator uncorrected")
	flag.Parse()
	password := os.Getenv("VCENTER_PASSWORD")
	if password == "" {
		log.Fatal("VCENTER_PASSWORD is not set")
	}
	check(run(*name, *out, *inventoryFile, *user, password, *asIs))
}

func run(name, out, inventoryFile, user, password string, asIs bool) error {
	wanted, err := readInventory(inventoryFile)
	if err != nil {
		return err
	}
	model := wanted.model()
	if err := model.Create(); err != nil {
		return err
	}
	defer model.Remove()
	authority, err := newAuthority(name)
	if err != nil {
		return err
	}
	model.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(user, password)}
	model.Service.TLS = &tls.Config{Certificates: []tls.Certificate{authority.server}, MinVersion: tls.VersionTLS12}
	model.Service.RegisterEndpoints = true
	if !asIs {
		correct()
	}
	server := model.Service.NewServer()
	p := newProxy(server.Config.Handler, user, password, asIs)
	server.Config.Handler = p
	if err := wanted.fill(model.Service, server.URL, user, password); err != nil {
		return err
	}
	p.reset() // the journal starts after the inventory is filled
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	err = writeFiles(filepath.Join(out, name), authority, server.URL, listener.Addr().String(), user, password, wanted)
	if err != nil {
		return err
	}
	log.Printf("%s at %s, control at http://%s", name, server.URL.Host, listener.Addr())
	c := &control{proxy: p, inventory: wanted, service: model.Service, server: server.URL, original: password}
	return http.Serve(listener, c.handler())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// writeFiles writes the addresses and the certificates for tests and scripts. NAME.json
// is the last one, so that its existence says that the server is ready.
func writeFiles(prefix string, a *authority, server *url.URL, control, user, password string, i *inventory) error {
	host, port, err := net.SplitHostPort(server.Host)
	if err != nil {
		return err
	}
	values := map[string]interface{}{
		"url": "https://" + server.Host, "host": host, "port": port, "control": "http://" + control,
		"user": user, "password": password, "ca": prefix + ".ca.pem",
		"sha1": a.thumbprint1, "sha256": a.thumbprint256, "machines": i.describe(),
	}
	if err := os.WriteFile(prefix+".ca.pem", a.certificate, 0o600); err != nil {
		return err
	}
	lines := ""
	for _, key := range []string{"url", "host", "port", "control", "sha1", "sha256"} {
		lines += fmt.Sprintf("%s='%s'\n", key, values[key])
	}
	if err := os.WriteFile(prefix+".env", []byte(lines), 0o600); err != nil {
		return err
	}
	data, err := json.MarshalIndent(values, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(prefix+".new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(prefix+".new", prefix+".json")
}
