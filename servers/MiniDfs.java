import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A NameNode and a DataNode on loopback, with data that stay: MiniDfs FOLDER PORT. Ends by a signal. */
public class MiniDfs {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        Configuration configuration = new Configuration();
        configuration.setInt("dfs.replication", 1);
        new MiniDFSCluster.Builder(configuration, folder.toFile())
            .nameNodePort(Integer.parseInt(arguments[1]))
            .numDataNodes(1)
            .format(!Files.exists(folder.resolve("name-0-1")))
            .build()
            .waitActive();
        System.out.println("up");
        Thread.currentThread().join();
    }
}
