// Sends, receives and completes with the official Java client, and prints what came. It is run with
// a connection string, a queue and the way: AMQP or AMQP_WEB_SOCKETS.

import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;

public class Transports {
    public static void main(String[] arguments) {
        ServiceBusClientBuilder builder =
            new ServiceBusClientBuilder()
                .connectionString(arguments[0])
                .transportType(AmqpTransportType.valueOf(arguments[2]));
        ServiceBusSenderClient sender = builder.sender().queueName(arguments[1]).buildClient();
        sender.sendMessage(new ServiceBusMessage("hello"));
        sender.sendMessage(new ServiceBusMessage(BinaryData.fromBytes(new byte[250_000])));
        ServiceBusReceiverClient receiver =
            builder.receiver().queueName(arguments[1]).disableAutoComplete().buildClient();
        int count = 0;
        while (count < 2) {
            for (ServiceBusReceivedMessage message :
                receiver.receiveMessages(2 - count, Duration.ofSeconds(20))) {
                System.out.println(message.getBody().toBytes().length);
                receiver.complete(message);
                count++;
            }
        }
        System.out.println(receiver.peekMessages(10).stream().count());
        // The client's threads are no daemons.
        System.exit(0);
    }
}
