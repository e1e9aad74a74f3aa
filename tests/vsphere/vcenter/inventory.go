package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"sort"
	"strings"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// nic is one entry of guest.net, which VMware Tools report.
type nic struct {
	Network  string   `json:"network"`
	IPs      []string `json:"ips"`
	DeviceID *int32   `json:"deviceConfigId,omitempty"` // -1: not a virtual network card
}

// machine is a VM in the inventory file, or in a request to the control port. Absent
// fields stay as they are. The names of the VMs in the file are the simulator's.
type machine struct {
	HostName string            `json:"hostName"`       // "-": none
	Host     string            `json:"host,omitempty"` // the HostSystem it runs on
	UUID     string            `json:"uuid,omitempty"`
	Nics     []nic             `json:"nics"`
	CPUs     int32             `json:"cpus,omitempty"`
	MemoryMB int32             `json:"memoryMB,omitempty"`
	GuestID  string            `json:"guestId,omitempty"`
	Power    string            `json:"power,omitempty"`
	Extra    map[string]string `json:"extraConfig,omitempty"`
}

type tag struct {
	Category string   `json:"category"`
	Name     string   `json:"name"`
	On       []string `json:"on"` // names of inventory objects
}

type inventory struct {
	Datacenters          int                `json:"datacenters"`
	DatacentersInFolders int                `json:"datacentersInFolders"`
	Clusters             int                `json:"clusters"`
	HostsPerCluster      int                `json:"hostsPerCluster"`
	Machines             map[string]machine `json:"machines"`
	Tags                 []tag              `json:"tags"`

	original map[string][]types.BaseOptionValue // extra configuration of each VM before fill
}

func readInventory(file string) (*inventory, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	i := new(inventory)
	if err := json.Unmarshal(data, i); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return i, nil
}

// model returns the simulator's inventory, with at least the VMs of the file.
func (i *inventory) model() *simulator.Model {
	model := simulator.VPX()
	model.Datacenter = i.Datacenters
	model.Folder = i.DatacentersInFolders
	model.Cluster = i.Clusters
	model.ClusterHost = i.HostsPerCluster
	model.Host = 0
	model.Pool = 1
	model.Machine = i.machinesPerPool()
	return model
}

// machinesPerPool is the highest VM number in the file, plus one.
func (i *inventory) machinesPerPool() int {
	most := 0
	for name := range i.Machines {
		n := 0
		if at := strings.LastIndex(name, "_VM"); at >= 0 {
			fmt.Sscanf(name[at:], "_VM%d", &n)
		}
		if n+1 > most {
			most = n + 1
		}
	}
	return most
}

// fill sets what the file says of the simulator's VMs, deletes the others, and attaches the tags.
func (i *inventory) fill(service *simulator.Service, server *url.URL, user, password string) error {
	i.original = map[string][]types.BaseOptionValue{}
	for _, e := range simulator.Map.All("VirtualMachine") {
		vm := e.(*simulator.VirtualMachine)
		if _, ok := i.Machines[vm.Name]; ok {
			i.original[vm.Name] = vm.Config.ExtraConfig
		}
	}
	if err := i.restore(service); err != nil {
		return err
	}
	return i.attachTags(server, user, password)
}

// restore sets all VMs to what the file says, and deletes the others.
func (i *inventory) restore(service *simulator.Service) error {
	missing := map[string]bool{}
	for name := range i.Machines {
		missing[name] = true
	}
	for _, e := range simulator.Map.All("VirtualMachine") {
		vm := e.(*simulator.VirtualMachine)
		wanted, ok := i.Machines[vm.Name]
		if !ok {
			if err := destroy(service, vm); err != nil {
				return err
			}
			continue
		}
		delete(missing, vm.Name)
		if wanted.Power == "" {
			wanted.Power = string(types.VirtualMachinePowerStatePoweredOn)
		}
		simulator.Map.WithLock(vm, func() {
			simulator.Map.Update(vm, []types.PropertyChange{{Name: "config.extraConfig", Val: i.original[vm.Name]}})
			change(vm, wanted)
		})
	}
	if len(missing) > 0 {
		return fmt.Errorf("these VMs do not exist: %v", missing)
	}
	return nil
}

// describe returns all VMs by name.
func (i *inventory) describe() map[string]interface{} {
	all := map[string]interface{}{}
	for _, e := range simulator.Map.All("VirtualMachine") {
		vm := e.(*simulator.VirtualMachine)
		all[vm.Name] = describe(vm)
	}
	return all
}

// create creates a VM on a host, in the VM folder of its datacenter.
func create(service *simulator.Service, name string, m machine) (*simulator.VirtualMachine, error) {
	ref := byPath("HostSystem:" + m.Host)
	if ref == nil {
		return nil, fmt.Errorf("there is no host %q", m.Host)
	}
	host := simulator.Map.Get(*ref).(*simulator.HostSystem)
	datacenter := simulator.Map.Get(*datacenterOf(host)).(*simulator.Datacenter)
	cluster, ok := simulator.Map.Get(*host.Parent).(*simulator.ClusterComputeResource)
	if !ok {
		return nil, fmt.Errorf("host %s is in no cluster", m.Host)
	}
	spec := types.VirtualMachineConfigSpec{Name: name, GuestId: m.GuestID, Uuid: m.UUID,
		Files: &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_0]"}}
	body, err := methods.CreateVM_Task(context.Background(), service, &types.CreateVM_Task{
		This: datacenter.VmFolder, Config: spec, Pool: *cluster.ResourcePool, Host: ref})
	if err != nil {
		return nil, err
	}
	task := simulator.Map.Get(body.Returnval).(*simulator.Task)
	if task.Info.Error != nil {
		return nil, fmt.Errorf("%s: %T", name, task.Info.Error.Fault)
	}
	vm := simulator.Map.Get(task.Info.Result.(types.ManagedObjectReference)).(*simulator.VirtualMachine)
	if m.Power == "" {
		m.Power = string(types.VirtualMachinePowerStatePoweredOn)
	}
	simulator.Map.WithLock(vm, func() { change(vm, m) })
	return vm, nil
}

// destroy deletes a VM, whatever its power state is.
func destroy(service *simulator.Service, vm *simulator.VirtualMachine) error {
	simulator.Map.WithLock(vm, func() { change(vm, machine{Power: string(types.VirtualMachinePowerStatePoweredOff)}) })
	body, err := methods.Destroy_Task(context.Background(), service, &types.Destroy_Task{This: vm.Self})
	if err != nil {
		return err
	}
	if task := simulator.Map.Get(body.Returnval).(*simulator.Task); task.Info.Error != nil {
		return fmt.Errorf("%s: %T", vm.Name, task.Info.Error.Fault)
	}
	return nil
}

// change sets the fields that are present, and notifies clients that wait for updates.
func change(vm *simulator.VirtualMachine, m machine) {
	var changes []types.PropertyChange
	set := func(name string, value interface{}) {
		changes = append(changes, types.PropertyChange{Name: name, Val: value})
	}
	if m.UUID != "" {
		set("config.uuid", m.UUID)
		set("summary.config.uuid", m.UUID)
	}
	if m.HostName != "" {
		name := m.HostName
		if name == "-" {
			name = ""
		}
		set("guest.hostName", name)
		set("summary.guest.hostName", name)
	}
	if m.Nics != nil {
		nics := []types.GuestNicInfo{}
		first := ""
		for n, card := range m.Nics {
			id := int32(4000 + n)
			if card.DeviceID != nil {
				id = *card.DeviceID
			}
			info := types.GuestNicInfo{Network: card.Network, IpAddress: card.IPs, Connected: true, DeviceConfigId: id,
				MacAddress: fmt.Sprintf("00:50:56:00:%02x:%02x", len(vm.Name), n), IpConfig: &types.NetIpConfigInfo{}}
			for _, ip := range card.IPs {
				prefix := int32(24)
				if strings.Contains(ip, ":") {
					prefix = 64
				}
				info.IpConfig.IpAddress = append(info.IpConfig.IpAddress, types.NetIpConfigInfoIpAddress{
					IpAddress: ip, PrefixLength: prefix, State: "preferred"})
				if first == "" && id != -1 {
					first = ip
				}
			}
			nics = append(nics, info)
		}
		set("guest.net", nics)
		set("guest.ipAddress", first)
		set("summary.guest.ipAddress", first)
	}
	if m.CPUs != 0 {
		set("config.hardware.numCPU", m.CPUs)
		set("summary.config.numCpu", m.CPUs)
	}
	if m.MemoryMB != 0 {
		set("config.hardware.memoryMB", m.MemoryMB)
		set("summary.config.memorySizeMB", m.MemoryMB)
	}
	if m.GuestID != "" {
		set("config.guestId", m.GuestID)
		set("summary.config.guestId", m.GuestID)
	}
	if m.Power != "" {
		state := types.VirtualMachinePowerState(m.Power)
		set("runtime.powerState", state)
		set("summary.runtime.powerState", state)
	}
	if ref := byPath("HostSystem:" + m.Host); m.Host != "" && ref != nil {
		set("runtime.host", *ref)
		set("summary.runtime.host", *ref)
	}
	if len(m.Extra) != 0 {
		kept := []types.BaseOptionValue{}
		for _, o := range vm.Config.ExtraConfig {
			if _, replaced := m.Extra[o.GetOptionValue().Key]; !replaced {
				kept = append(kept, o)
			}
		}
		keys := []string{}
		for k := range m.Extra {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			kept = append(kept, &types.OptionValue{Key: k, Value: m.Extra[k]})
		}
		set("config.extraConfig", kept)
	}
	simulator.Map.Update(vm, changes)
}

// swapped is the UUID as the firmware shows it to the operating system: the first
// three groups in the other byte order.
func swapped(uuid string) string {
	if len(uuid) != 36 {
		return uuid
	}
	b := strings.ReplaceAll(uuid, "-", "")
	turn := func(s string) string {
		out := ""
		for i := len(s); i > 0; i -= 2 {
			out += s[i-2 : i]
		}
		return out
	}
	return turn(b[:8]) + "-" + turn(b[8:12]) + "-" + turn(b[12:16]) + "-" + b[16:20] + "-" + b[20:]
}

func describe(vm *simulator.VirtualMachine) map[string]interface{} {
	dc := ""
	if d := datacenterOf(vm); d != nil {
		dc = simulator.Map.Get(*d).(mo.Entity).Entity().Name
	}
	return map[string]interface{}{
		"name": vm.Name, "moref": vm.Self.Value, "uuid": vm.Config.Uuid, "systemUUID": swapped(vm.Config.Uuid),
		"hostName": vm.Guest.HostName, "power": string(vm.Runtime.PowerState), "datacenter": dc,
		"cpus": vm.Summary.Config.NumCpu, "memoryMB": vm.Summary.Config.MemorySizeMB, "guestId": vm.Summary.Config.GuestId,
	}
}

// attachTags goes through the server's own REST interface.
func (i *inventory) attachTags(server *url.URL, user, password string) error {
	ctx := context.Background()
	address := *server
	address.User = url.UserPassword(user, password)
	c, err := govmomi.NewClient(ctx, &address, true)
	if err != nil {
		return err
	}
	defer c.Logout(ctx)
	r := rest.NewClient(c.Client)
	if err := r.Login(ctx, address.User); err != nil {
		return err
	}
	defer r.Logout(ctx)
	m := tags.NewManager(r)
	categories := map[string]string{}
	for _, t := range i.Tags {
		if categories[t.Category] == "" {
			id, err := m.CreateCategory(ctx, &tags.Category{Name: t.Category, Cardinality: "SINGLE"})
			if err != nil {
				return err
			}
			categories[t.Category] = id
		}
		id, err := m.CreateTag(ctx, &tags.Tag{Name: t.Name, CategoryID: categories[t.Category]})
		if err != nil {
			return err
		}
		for _, name := range t.On {
			ref := byPath(name)
			if ref == nil {
				return fmt.Errorf("tag %s: no object %q", t.Name, name)
			}
			if err := m.AttachTag(ctx, id, *ref); err != nil {
				return err
			}
		}
	}
	return nil
}

// byPath finds an object by "Type:name" or "Type:parent/name", for example
// "HostSystem:DC0_C0_H0" or "Folder:vm/F0".
func byPath(path string) *types.ManagedObjectReference {
	kind, name, parent := "", path, ""
	if at := strings.Index(path, ":"); at >= 0 {
		kind, name = path[:at], path[at+1:]
	}
	if at := strings.Index(name, "/"); at >= 0 {
		parent, name = name[:at], name[at+1:]
	}
	for _, e := range simulator.Map.All(kind) {
		if e.Entity().Name != name {
			continue
		}
		if parent != "" {
			up := e.Entity().Parent
			if up == nil {
				continue
			}
			if p, ok := simulator.Map.Get(*up).(mo.Entity); !ok || p.Entity().Name != parent {
				continue
			}
		}
		ref := e.Reference()
		return &ref
	}
	return nil
}

func writeJSON(file string, value interface{}) error {
	if file == "" {
		return nil
	}
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o600)
}
