import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.hive.metastore.utils.SecurityUtils;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TTransportFactory;

/** Hive's metastore on loopback: Metastore PORT. HiveMetaStore itself listens on every network of the machine. */
public class Metastore {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = MetastoreConf.newMetastoreConf();
        TxnDbUtil.prepDb(configuration); // the tables of locks, which DataNucleus does not make
        IHMSHandler handler = new HiveMetaStore.HMSHandler("metastore", configuration, false);
        handler = RetryingHMSHandler.getProxy(configuration, handler, false);
        new TThreadPoolServer(
                new TThreadPoolServer.Args(SecurityUtils.getServerSocket("127.0.0.1", Integer.parseInt(arguments[0])))
                    .processor(new TSetIpAddressProcessor<>(handler))
                    .transportFactory(new TTransportFactory())
                    .protocolFactory(new TBinaryProtocol.Factory()))
            .serve();
    }
}
