// Sends, receives and completes with the official Go client, and prints what came.
// The arguments are a connection string, a queue, and the way: amqp, amqps, ws or wss.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/coder/websocket"
)

func main() {
	text, queue, way, address := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	options := &azservicebus.ClientOptions{}
	if way == "ws" || way == "wss" {
		options.NewWebSocketConn = func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			// Asked for as the client's own example does it; where to is ours, because the client means 443.
			url := way + "://" + address + "/$servicebus/websocket"
			opened, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"amqp"}})
			if err != nil {
				return nil, err
			}
			return websocket.NetConn(context.Background(), opened, websocket.MessageBinary), nil
		}
	}
	client, err := azservicebus.NewClientFromConnectionString(text, options)
	check(err)
	sender, err := client.NewSender(queue, nil)
	check(err)
	check(sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("hello")}, nil))
	check(sender.SendMessage(ctx, &azservicebus.Message{Body: make([]byte, 250_000)}, nil))
	receiver, err := client.NewReceiverForQueue(queue, nil)
	check(err)
	for count := 0; count < 2; {
		messages, err := receiver.ReceiveMessages(ctx, 2-count, nil)
		check(err)
		for _, message := range messages {
			fmt.Println(len(message.Body))
			check(receiver.CompleteMessage(ctx, message, nil))
			count++
		}
	}
	left, err := receiver.PeekMessages(ctx, 10, nil)
	check(err)
	fmt.Println(len(left))
	check(client.Close(ctx))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
